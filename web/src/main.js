document.title = "coppice";
